"""The instrumented DDP trainer that comes with ddpmon.

It is one folder with two names: `trainer` in a checkout, `ddpmon.trainer` there and in an installed ddpmon (the link
`ddpmon/trainer`). Its modules therefore import each other relatively and read their package's name from `__package__`.
"""
