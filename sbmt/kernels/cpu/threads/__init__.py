"""The threads that kernels run on, and how ranges of rows are shared out among them."""
