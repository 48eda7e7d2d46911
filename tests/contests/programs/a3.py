import sys
from collections import defaultdict
from itertools import accumulate


def main():
    data = iter(sys.stdin.read().split())
    for _ in range(int(next(data))):
        always, change = 0, defaultdict(int, {1: 0})  # hints that hold, as steps along the numbers from 1
        hints = int(next(data))
        for _ in range(hints):
            operator, bound, reply = next(data), int(next(data)), next(data)
            low, high = {"<": (1, bound), ">": (bound + 1, None)}.get(operator, (bound, bound + 1))
            if reply == "Yes":
                change[low] += 1
                if high is not None:
                    change[high] -= 1
            else:
                always += 1
                change[low] -= 1
                if high is not None:
                    change[high] += 1
        print(hints - always - max(accumulate(change[number] for number in sorted(change))))


main()
