/* Keeps more values across a barrier than any target here has registers for. */
#define COUNT 256

kernel __attribute__((reqd_work_group_size(1024, 1, 1)))
void planted(global const float *from, global float *to)
{
    const uint item = get_global_id(0);
    float kept[COUNT];
#pragma unroll
    for (uint i = 0; i < COUNT; i++)
        kept[i] = from[i * 4096 + item];
    barrier(CLK_GLOBAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < COUNT; i++)
        to[i * 4096 + item] = kept[COUNT - 1 - i] * kept[i];
}
