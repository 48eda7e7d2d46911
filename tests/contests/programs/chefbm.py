import sys
from collections import defaultdict


def main():
    data = list(map(int, sys.stdin.read().split()))
    n, m, p = data[:3]
    raised = [defaultdict(int) for _ in range(n + 1)]
    for i, j in zip(data[3 : 3 + 2 * p : 2], data[4 : 4 + 2 * p : 2], strict=False):
        if 1 <= i <= n:
            raised[i][j] += 1
    for row in raised[1:]:
        # Only beside a raised element can the way be shut; the costs of all steps telescope.
        shut = any(j + 1 <= m and row[j] > 1 + row.get(j + 1, 0) for j in list(row))
        print(-1 if shut else m + row.get(m, 0) - 1 - row.get(1, 0))


main()
