import sys


def main():
    data = list(map(int, sys.stdin.read().split()))
    at = 1
    for _ in range(data[0]):
        n, push = data[at], data[at + 1]
        shots = 0
        for x in sorted(set(data[at + 2 : at + 2 + n]), reverse=True):
            if x - shots * push <= 0:
                break
            shots += 1
        at += 2 + n
        print(shots)


main()
