/* Prints the float16 bits of each float32 number of a file.
 *
 *     round_half NUMBERS
 */
#include <inttypes.h>
#include <stdio.h>

#include "run.h"

int main(int argc, char **argv) {
    float number;
    FILE *stream = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!stream) return 2;
    while (fread(&number, sizeof number, 1, stream) == 1) printf("%" PRIu16 "\n", vd_half_of_float(number));
    fclose(stream);
    return 0;
}
