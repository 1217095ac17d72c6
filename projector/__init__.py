"""proj"""
