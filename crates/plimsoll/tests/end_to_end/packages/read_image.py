"""Reads an image in the layout of OCI, checks it, and unpacks its layers.

    python3 read_image.py ARCHIVE DIRECTORY

It prints the configuration of the image. Any digest, size or reference that is wrong ends it.
"""

import gzip
import hashlib
import io
import json
import re
import sys
import tarfile


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def main(archive, directory):
    with tarfile.open(archive) as outer:
        members = [m for m in outer.getmembers() if m.isfile()]
        files = {m.name.removeprefix("./"): outer.extractfile(m).read() for m in members}
        assert all(m.uid == 0 and m.gid == 0 for m in outer.getmembers())
    blobs = {}
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert re.fullmatch("blobs/sha256/[0-9a-f]{64}", name), name
            blobs[name.removeprefix("blobs/").replace("/", ":")] = data
    for name, data in blobs.items():
        assert digest(data) == name, name

    def described(descriptor, media_type):
        data = blobs[descriptor["digest"]]
        assert descriptor["mediaType"] == media_type, descriptor
        assert descriptor["size"] == len(data), descriptor
        return data

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files["index.json"])
    assert index["schemaVersion"] == 2 and len(index["manifests"]) == 1
    oci = "application/vnd.oci.image."
    manifest = json.loads(described(index["manifests"][0], oci + "manifest.v1+json"))
    assert manifest["schemaVersion"] == 2
    config = json.loads(described(manifest["config"], oci + "config.v1+json"))
    layers = [described(layer, oci + "layer.v1.tar+gzip") for layer in manifest["layers"]]
    plain = [gzip.decompress(layer) for layer in layers]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [digest(tar) for tar in plain]}
    assert len(config["history"]) == len(layers)
    # Nothing is in the archive that the manifest does not lead to.
    assert len(blobs) == len(layers) + 2, list(blobs)

    listed = json.loads(files["manifest.json"])[0]
    path = lambda descriptor: "blobs/" + descriptor["digest"].replace(":", "/")
    assert listed["Config"] == path(manifest["config"])
    assert listed["Layers"] == [path(layer) for layer in manifest["layers"]]

    user = int(config["config"]["User"].split(":")[0])
    assert user != 0
    owners = {}
    for tar in plain:
        with tarfile.open(fileobj=io.BytesIO(tar)) as layer:
            owners.update({member.name: member.uid for member in layer.getmembers()})
            layer.extractall(directory, numeric_owner=True)
    written = [name for name, owner in owners.items() if owner != 0]
    assert sorted(written) == ["./var/cache/plimsoll", "./var/log/plimsoll"], written
    assert all(owners[name] == user for name in written)
    print(json.dumps(config))


main(*sys.argv[1:])
