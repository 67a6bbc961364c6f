"""The lab: the course in the browser and in the terminal, its labs, questions and exercises."""
