from collections import Counter

n = int(input())
old = Counter(input().strip() for _ in range(n))
new = Counter(input().strip() for _ in range(n))
print(sum((old - new).values()))
