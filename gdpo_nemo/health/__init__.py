"""Reward health: what rewards are like before they are trained on, and whether a run still learns from them.

rollouts, readers    named rewards in prompt groups, from the logs of several frameworks
probing              the same, sampled now from the configured model, with what each reward function costs
measures, pairs      numbers per reward, per pair of rewards and per method
advice               what follows from them, each line with the number behind it
"""
