t1, t2, x1, x2, t0 = map(int, input().split())
if t1 == t2:
    print(x1, x2)
elif t0 == t1:
    print(x1, 0)
else:
    # excess / flow: how much too hot it is, times a constant. Downwards: of equal ones the larger flow comes first.
    cold, hot = t0 - t1, t2 - t0
    best, excess, flow = (0, x2), hot * x2, x2
    for y1 in range(min(x1, x2 * hot // cold), 0, -1):
        y2 = -(-y1 * cold // hot)
        more = y2 * hot - y1 * cold
        if more * flow < excess * (y1 + y2):
            best, excess, flow = (y1, y2), more, y1 + y2
            if more == 0:
                break
    print(*best)
