import sys


def main():
    # Components of a forest: planets that stand minus wormholes whose both ends stand.
    data = iter(sys.stdin.read().split())
    n = int(next(data))
    stands = [1 - float(next(data)) for _ in range(n)]
    neighbours = [[] for _ in range(n)]
    for _ in range(n - 1):
        a, b = int(next(data)), int(next(data))
        neighbours[a].append(b)
        neighbours[b].append(a)
    parent, order = [-1] * n, [0]
    for v in order:
        for w in neighbours[v]:
            if w != parent[v]:
                parent[w] = v
                order.append(w)
    below = [0.0] * n  # sum over the children
    for v in order[1:]:
        below[parent[v]] += stands[v]
    expected = sum(stands) - sum(stands[v] * below[v] for v in range(n))
    for _ in range(int(next(data))):
        v, fresh = int(next(data)), 1 - float(next(data))
        change = fresh - stands[v]
        above = stands[parent[v]] if parent[v] >= 0 else 0.0
        expected += change * (1 - below[v] - above)
        if parent[v] >= 0:
            below[parent[v]] += change
        stands[v] = fresh
        print(f"{expected:.5f}")


main()
