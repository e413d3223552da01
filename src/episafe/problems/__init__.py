"""Problems: what a simulator knows. Every problem has a `.task`, which is all that a learner sees."""
