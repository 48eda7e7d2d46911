from itertools import accumulate


def main():
    for _ in range(int(input())):
        a, b, queries = map(int, input().split())
        period = a * b
        before = [0, *accumulate((x % a) % b != (x % b) % a for x in range(period))]

        def below(x, period=period, before=before):
            return x // period * before[-1] + before[x % period]

        answers = []
        for _ in range(queries):
            low, high = map(int, input().split())
            answers.append(below(high + 1) - below(low))
        print(*answers)


main()
