import sys
from collections import defaultdict


def main():
    data = list(map(int, sys.stdin.read().split()))
    n, k = data[0], data[1]
    neighbours = defaultdict(list)
    for v, u in zip(data[2::2], data[3::2], strict=False):
        neighbours[v].append(u)
        neighbours[u].append(v)

    def walk(start):
        parent, order = {start: None}, [start]
        for v in order:
            for u in neighbours[v]:
                if u not in parent:
                    parent[u] = v
                    order.append(u)
        return parent, order

    parent, order = walk(walk(1)[1][-1])
    longest = [order[-1]]
    while parent[longest[-1]] is not None:
        longest.append(parent[longest[-1]])
    color = {v: place % k + 1 for place, v in enumerate(longest)}
    for place, v in enumerate(longest):
        # What hangs on v goes on from the end of the longest path that is k away; from both ends it cannot.
        depth, hanging = {v: 0}, [v]
        for w in hanging:
            for u in neighbours[w]:
                if u not in depth and u not in color:
                    depth[u] = depth[w] + 1
                    hanging.append(u)
        height = depth[hanging[-1]]
        from_first = place + height + 1 >= k
        from_last = len(longest) - place + height >= k
        if height and from_first and from_last and k > 2:
            print("No")
            return
        for w in hanging[1:]:
            color[w] = (place - depth[w] if from_last else place + depth[w]) % k + 1
    print("Yes")
    print(*(color.get(v, 1) for v in range(1, n + 1)))


main()
