import sys


def primes_of(x):
    found, p = set(), 2
    while p * p <= x:
        while x % p == 0:
            found.add(p)
            x //= p
        p += 1
    return found | ({x} if x > 1 else set())


numbers = list(map(int, sys.stdin.read().split()))
pairs = list(zip(numbers[1::2], numbers[2::2], strict=False))[: numbers[0]]
candidates = sorted(primes_of(pairs[0][0]) | primes_of(pairs[0][1]))
print(next((p for p in candidates if all(a % p == 0 or b % p == 0 for a, b in pairs)), -1))
