/* A file system in which every request is taken and none is answered: who asks sleeps
   uninterruptibly and survives SIGKILL. Mounts on argv[1], says "mounted", and undoes it at
   the end of its stdin. Exits with 77 where it may not mount. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

static void start(int fuse, struct fuse_in_header *request) {
    struct { struct fuse_out_header head; struct fuse_init_out init; } reply = {0};
    reply.head = (struct fuse_out_header){.len = sizeof reply, .unique = request->unique};
    reply.init = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
    write(fuse, &reply, sizeof reply);
}

int main(int argc, char **argv) {
    char options[100];
    static char buffer[1 << 20];
    int fuse = open("/dev/fuse", O_RDWR);
    if (argc != 2 || fuse < 0) return 77;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (mount("never", argv[1], "fuse", 0, options)) return 77;
    puts("mounted");
    fflush(stdout);
    struct pollfd ends[2] = {{.fd = fuse, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    while (poll(ends, 2, -1) > 0 && !ends[1].revents) {
        struct fuse_in_header *request = (struct fuse_in_header *)buffer;
        if (read(fuse, buffer, sizeof buffer) > 0 && request->opcode == FUSE_INIT) start(fuse, request);
    }
    close(fuse); /* Ends every request that waits. */
    return umount2(argv[1], MNT_DETACH);
}
