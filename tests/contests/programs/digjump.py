from collections import defaultdict, deque

digits = input().strip()
places = defaultdict(list)
for place, digit in enumerate(digits):
    places[digit].append(place)
jumps = {0: 0}
queue = deque([0])
while queue:
    here = queue.popleft()
    for there in (here - 1, here + 1, *places.pop(digits[here], ())):
        if 0 <= there < len(digits) and there not in jumps:
            jumps[there] = jumps[here] + 1
            queue.append(there)
print(jumps[len(digits) - 1])
