"""A registry for container images on this machine that serves an OCI layout and asks who is there."""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def serve(layout, user, password):
    """Serves the one image of a layout under every name and tag; yields the registry's address."""
    index = json.loads((layout / "index.json").read_text())
    manifest = index["manifests"][0]["digest"]
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.headers.get("Authorization") != expected:
                return self.answer(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', "application/json")
            *_, kind, reference = self.path.split("/")
            if kind == "manifests":
                digest = reference if reference.startswith("sha256:") else manifest
                return self.blob(digest, "application/vnd.oci.image.manifest.v1+json")
            if kind == "blobs":
                return self.blob(reference, "application/octet-stream")
            return self.answer(200, b"{}", "application/json")

        do_HEAD = do_GET

        def blob(self, digest, media_type):
            path = layout / "blobs/sha256" / digest.removeprefix("sha256:")
            if not path.exists():
                return self.answer(404, b'{"errors":[{"code":"NAME_UNKNOWN"}]}', "application/json")
            return self.answer(200, path.read_bytes(), media_type, digest)

        def answer(self, status, content, media_type, digest=None):
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="test"')
            if digest:
                self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
