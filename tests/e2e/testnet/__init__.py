"""The test world: two regions, a point of presence, client networks and a NAT on one machine, and what goes wrong.

`topology` makes the networks, `world` runs the programs in them, `calls` places calls and listens, `scenarios` says
what goes wrong and what it may cost, `trial` runs one of these and judges, `results` tells. `scripts/testnet` is the
way in; `test_testnet.py` has some of it in the tests.
"""
