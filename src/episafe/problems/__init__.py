"""What the world is: tasks, CMDPs, policies and their exact answers."""
