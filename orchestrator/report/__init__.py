"""What is said about trainings once they have ended."""
