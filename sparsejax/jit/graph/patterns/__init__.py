"""What is known of which entries values store, and what follows for a program."""
