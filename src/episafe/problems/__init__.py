"""Problems that can be simulated. Every problem has a `.task`, the only part that an agent sees."""
