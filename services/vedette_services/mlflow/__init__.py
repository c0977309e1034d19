"""Recording to an MLflow tracking server, by its REST interface: no package of MLflow's is needed."""
