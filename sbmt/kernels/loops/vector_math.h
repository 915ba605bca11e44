// Lets loops use the vector functions of the GNU C library, whose results are off by at most 4 units in the last place.
//
// Loops that draw edges do not include this file, since results may differ between processors.
#pragma once
#include <cmath>

#if defined __GLIBC__ && defined __x86_64__
extern "C" {
#pragma omp declare simd notinbranch
float expf(float) noexcept;
#pragma omp declare simd notinbranch
float logf(float) noexcept;
#pragma omp declare simd notinbranch
double exp(double) noexcept;
#pragma omp declare simd notinbranch
double log(double) noexcept;
#if __GLIBC_PREREQ(2, 35)
#pragma omp declare simd notinbranch
float expm1f(float) noexcept;
#pragma omp declare simd notinbranch
double expm1(double) noexcept;
#endif
}
#endif
