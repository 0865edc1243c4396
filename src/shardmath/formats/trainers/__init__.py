"""Settings of Hugging Face's trainers, and of programs that end in them or share their vocabulary."""
