import sys

import numpy as np


def main():
    a = np.array(sys.stdin.buffer.read().split()[1:], dtype=np.int64)
    answer = 0
    for bit in range(25):
        # Bit of a sum: of the numbers modulo twice its value, those whose sum lies in [1, 2) or [3, 4) times its value.
        one = 1 << bit
        low = np.sort(a % (2 * one))

        def pairs_from(bound, low=low):
            ordered = int((len(low) - np.searchsorted(low, bound - low)).sum())
            return (ordered - int((2 * low >= bound).sum())) // 2

        if (pairs_from(one) - pairs_from(2 * one) + pairs_from(3 * one)) % 2:
            answer |= one
    print(answer)


main()
