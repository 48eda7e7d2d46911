number, answer = input().strip(), input().strip()
digits = sorted(number)
if number != "0":
    first = next(i for i, digit in enumerate(digits) if digit != "0")
    digits[0], digits[first] = digits[first], digits[0]
print("OK" if "".join(digits) == answer else "WRONG_ANSWER")
