"""YAML of NeMo and Megatron-Bridge: read as flags of Megatron-LM, and written."""
