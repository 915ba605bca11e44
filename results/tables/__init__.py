"""From the result files to the pages: tables, single numbers, the errata and the overview."""
