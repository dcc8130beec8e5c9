/* Does not compile. */
kernel void planted(global float *to)
{
    to[get_global_id(0)] = undeclared;
}
