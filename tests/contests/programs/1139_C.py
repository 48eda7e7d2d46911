import sys

MODULUS = 10**9 + 7


def main():
    data = list(map(int, sys.stdin.read().split()))
    n, k = data[0], data[1]
    leader = list(range(n + 1))

    def find(v):
        while leader[v] != v:
            leader[v] = leader[leader[v]]
            v = leader[v]
        return v

    for i in range(2, 3 * n - 1, 3):
        u, v, black = data[i : i + 3]
        if not black:
            leader[find(u)] = find(v)
    sizes = [0] * (n + 1)
    for v in range(1, n + 1):
        sizes[find(v)] += 1
    print((pow(n, k, MODULUS) - sum(pow(size, k, MODULUS) for size in sizes)) % MODULUS)


main()
