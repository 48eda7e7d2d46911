def main():
    n = int(input())
    a = list(map(int, input().split()))
    left, right, last, taken = 0, n - 1, 0, []
    while left <= right:
        low, high = a[left], a[right]
        if low > last and high > last and low != high:
            side = "L" if low < high else "R"
        elif low > last and high > last:
            # Equal ends: whichever is taken, the other end is of no use any more.
            from_left, from_right = 1, 1
            while left + from_left <= right and a[left + from_left] > a[left + from_left - 1]:
                from_left += 1
            while right - from_right >= left and a[right - from_right] > a[right - from_right + 1]:
                from_right += 1
            taken.append("L" * from_left if from_left > from_right else "R" * from_right)
            break
        elif low > last:
            side = "L"
        elif high > last:
            side = "R"
        else:
            break
        taken.append(side)
        last = low if side == "L" else high
        left, right = left + (side == "L"), right - (side == "R")
    steps = "".join(taken)
    print(len(steps))
    print(steps)


main()
