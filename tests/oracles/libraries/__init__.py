"""Tables that need libraries which the tests do without, counted again row by row.

    pip install peft==0.21.2 bitsandbytes==0.50.2 accelerate==1.15.0 torchao==0.18.0 cut-cross-entropy==25.1.1 triton
    pip install torchtune==0.6.1, with torchao==0.10.0 in an environment of its own
    pip install --no-deps --target FOLDER transformer_engine==2.11.0; export TRANSFORMER_ENGINE=FOLDER
    cd tests && python -m oracles.libraries [TABLE]...

Every module here is the program behind a table of tests/data of the same name: ``count`` takes the sizes of a row and
returns its counted columns.
"""
