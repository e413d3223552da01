"""Episodes and policies as files, and data frames."""
