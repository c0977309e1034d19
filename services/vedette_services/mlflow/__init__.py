"""Recording to an MLflow tracking server, by its REST interface: none of its packages is needed."""
