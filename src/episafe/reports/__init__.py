"""Reports: metrics, tables, figures and one HTML page, made from records and nothing else."""
