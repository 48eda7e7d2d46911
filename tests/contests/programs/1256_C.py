n, m, d = map(int, input().split())
lengths = list(map(int, input().split()))
# As far as a jump goes each time, as long as the rest still fits.
cells, rest = [], sum(lengths)
for platform, length in enumerate(lengths, 1):
    gap = min(d - 1, n - len(cells) - rest)
    cells += [0] * gap + [platform] * length
    rest -= length
if n + 1 - len(cells) > d:
    print("NO")
else:
    print("YES")
    print(*cells, *[0] * (n - len(cells)))
