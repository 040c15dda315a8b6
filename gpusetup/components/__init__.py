"""One module per component: its settings, its packages, the actions of a plan and the variables of its role."""
