t1, t2, x1, x2, t0 = map(int, input().split())
best, answer = None, None
for y1 in range(x1 + 1):
    for y2 in range(x2 + 1):
        heat, flow = t1 * y1 + t2 * y2, y1 + y2
        if flow and heat >= t0 * flow and (best is None or (heat / flow, -flow) < best):
            best, answer = (heat / flow, -flow), (y1, y2)
print(*answer)
