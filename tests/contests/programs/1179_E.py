from random import choice

END = 10**18


def main():
    n, total = map(int, input().split())
    segments = [None] * n

    def ask(i, x):
        print("?", i + 1, x, flush=True)
        return int(input())

    def first_reaching(i, value, low, high):
        while low < high:
            middle = (low + high) // 2
            if ask(i, middle) >= value:
                high = middle
            else:
                low = middle + 1
        return low

    def split(functions, size, value, low, high):
        # The `size` that reach the value first, the others, and a point between: quickselect with binary searches.
        early, late, rest = [], [], functions
        while rest:
            pivot = choice(rest)
            point = first_reaching(pivot, value, low, high)
            before, there, after = [], [pivot], []
            for i in rest:
                if i == pivot:
                    continue
                if ask(i, point) < value:
                    after.append(i)
                elif point > low and ask(i, point - 1) >= value:
                    before.append(i)
                else:
                    there.append(i)
            wanted = size - len(early)
            if wanted < len(before):
                rest, late, high = before, late + there + after, point
            elif wanted <= len(before) + len(there):
                here = wanted - len(before)
                return early + before + there[:here], there[here:] + after + late, point
            else:
                rest, early, low = after, early + before + there, point
        raise AssertionError("fewer functions than wanted")

    # Half of the functions, those that reach half of the value first, get the left part of the segment.
    stack = [(list(range(n)), 0, 0, END)]
    while stack:
        functions, done, left, right = stack.pop()
        if len(functions) > 1:
            size = len(functions) // 2
            early, late, point = split(functions, size, (done + size) * total // n, left, right)
            stack.append((early, done, left, point))
            stack.append((late, done + size, point, right))
        elif functions:
            segments[functions[0]] = (left, right)
    print("!")
    for segment in segments:
        print(*segment)


main()
