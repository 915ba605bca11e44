"""ListOps: what does a nested expression amount to?"""
