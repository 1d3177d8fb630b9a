"""How often verdicts are right: planted models, negative controls, and the error rates measured on them."""
