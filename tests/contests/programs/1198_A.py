from collections import Counter

n, disk = map(int, input().split())
counts = [count for _, count in sorted(Counter(map(int, input().split())).items())]
bits = 8 * disk // n
kept = min(2 ** min(bits, 20), len(counts))  # 2**20 exceeds any n
window = best = sum(counts[:kept])
for i in range(kept, len(counts)):
    window += counts[i] - counts[i - kept]
    best = max(best, window)
print(n - best)
