"""Write the LaTeX appendix of one implementation, with the numbers of a configuration."""
