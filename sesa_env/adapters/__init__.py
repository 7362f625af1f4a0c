"""The environments in the form that other libraries expect, one module for each library."""
