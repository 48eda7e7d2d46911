import sys


def main():
    # A set is a tree when it has no cycle and one edge less than cells. Quadratic in the number of cells: right, and
    # fast enough for the small parks of this file.
    data = list(map(int, sys.stdin.read().split()))
    n, m = data[0], data[1]
    size = n * m
    cell_of = {level: i for i, level in enumerate(data[2 : 2 + size])}
    level_of = data[2 : 2 + size]

    def neighbours(i):
        x, y = divmod(i, m)
        if x:
            yield i - m
        if x < n - 1:
            yield i + m
        if y:
            yield i - 1
        if y < m - 1:
            yield i + 1

    def find(leader, i):
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    pleasant = 0
    for low in range(1, size + 1):
        leader = list(range(size))
        trees = 0
        for high in range(low, size + 1):
            cell = cell_of[high]
            trees += 1
            met = [find(leader, j) for j in neighbours(cell) if low <= level_of[j] < high]
            if len(set(met)) < len(met):
                break
            for other in met:
                leader[other] = cell
            trees -= len(met)
            pleasant += trees == 1
    print(pleasant)


main()
