import sys


def main():
    data = iter(map(int, sys.stdin.read().split()))
    n, _ = next(data), next(data)
    boxes = [{next(data) for _ in range(next(data))} for _ in range(n)]
    size, larger = divmod(sum(map(len, boxes)), n)
    order = sorted(range(n), key=lambda i: -len(boxes[i]))
    target = {i: size + (place < larger) for place, i in enumerate(order)}
    poor = [i for i in order if len(boxes[i]) < target[i]]
    moves = []
    for rich in order:
        while len(boxes[rich]) > target[rich]:
            to = poor[-1]
            wanted = min(len(boxes[rich]) - target[rich], target[to] - len(boxes[to]))
            kinds = []
            for kind in boxes[rich]:
                if len(kinds) == wanted:
                    break
                if kind not in boxes[to]:
                    kinds.append(kind)
            boxes[rich].difference_update(kinds)
            boxes[to].update(kinds)
            moves += [(rich + 1, to + 1, kind) for kind in kinds]
            if len(boxes[to]) == target[to]:
                poor.pop()
    print(len(moves))
    for move in moves:
        print(*move)


main()
