/* Lab stand-in for NVIDIA's kernel module: compiles against real headers, carries version and licence, drives nothing. Loaded,
 * it says who it is in the same file as the real one. */
#include <linux/init.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#define FOLDER "driver/nvidia"
#define TITLE (sizeof("@LICENSE@") > sizeof("NVIDIA") ? "NVIDIA UNIX Open Kernel Module for x86_64" : "NVIDIA UNIX x86_64 Kernel Module")

static const bool first = sizeof(KBUILD_MODNAME) == sizeof("nvidia");

static int version_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "NVRM version: %s  @VERSION@  Release Build  (lab@simulated)\nGCC version:  simulated\n", TITLE);
	return 0;
}

static int __init stand_in_init(void)
{
	if (first && (!proc_mkdir(FOLDER, NULL) || !proc_create_single(FOLDER "/version", 0444, NULL, version_show)))
		return -ENOMEM;
	return 0;
}

static void __exit stand_in_exit(void)
{
	if (first)
		remove_proc_subtree(FOLDER, NULL);
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_LICENSE("@LICENSE@");
MODULE_VERSION("@VERSION@");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc00i00*");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc02i00*");
