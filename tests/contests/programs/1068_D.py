import sys

import numpy as np

MODULUS = 998244353
TOP = 200


def main():
    numbers = list(map(int, sys.stdin.read().split()))
    # needs[x], free[x]: ways that end in x, where the next one must be at least x, or need not be.
    needs, free = np.zeros(TOP + 1, dtype=np.int64), np.zeros(TOP + 1, dtype=np.int64)
    needs[1:] = 1
    if numbers[1] != -1:
        needs[:] = 0
        needs[numbers[1]] = 1
    for a in numbers[2 : 1 + numbers[0]]:
        both = (needs + free) % MODULUS
        up_to = np.cumsum(both)
        smaller = np.concatenate(([0], up_to[:-1]))
        larger = np.cumsum(free[::-1])[::-1] - free
        needs, free = smaller % MODULUS, (both + larger) % MODULUS
        if a != -1:
            needs[np.arange(TOP + 1) != a] = 0
            free[np.arange(TOP + 1) != a] = 0
        needs[0] = free[0] = 0
    print(int(free.sum() % MODULUS))


main()
