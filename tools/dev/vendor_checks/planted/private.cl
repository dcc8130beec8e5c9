/* An array whose index the data decides: it cannot be kept in registers. */
#define COUNT 64

kernel void planted(global const uint *from, global uint *to)
{
    const uint item = get_global_id(0);
    uint line[COUNT];
    for (uint i = 0; i < COUNT; i++)
        line[i] = from[item * COUNT + i];
    for (uint i = 0; i < COUNT; i++)
        line[line[i] % COUNT] += i;
    to[item] = line[from[item] % COUNT];
}
