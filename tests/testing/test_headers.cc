// No test: the program that a precompiled header must belong to.
